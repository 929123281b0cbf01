module started

go 1.24

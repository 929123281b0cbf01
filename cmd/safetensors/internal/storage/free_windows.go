package storage

import "golang.org/x/sys/windows"

// freeSpace returns how many bytes a user may still write to the volume of a folder.
func freeSpace(dir string) (free uint64, known bool) {
	name, err := windows.UTF16PtrFromString(dir)
	if err != nil || windows.GetDiskFreeSpaceEx(name, &free, nil, nil) != nil {
		return 0, false
	}
	return free, true
}

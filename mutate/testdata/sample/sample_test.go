package sample

import "testing"

func TestClamp(t *testing.T) {
	for n, want := range map[int]int{0: 0, 1: 1, 9: 9, 10: 10, 11: 10, 12: 10} {
		if got, err := Clamp(n); got != want || err != nil {
			t.Error(n, got, err)
		}
	}
	if _, err := Clamp(-1); err != errNegative {
		t.Error(err)
	}
	Forever(false)
}

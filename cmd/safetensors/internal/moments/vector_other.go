//go:build purego || !amd64

package moments

// addVector adds nothing: there is no assembly here.
func (l *lanes) addVector(b []byte, shift float32) int { return 0 }

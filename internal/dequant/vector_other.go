package dequant

// There is no assembly here: the loops do everything.

func unpack4Vector(dst []float32, src []byte, numbers *[16]float32) int { return 0 }
func mulVector(dst, factors []float32) int                              { return 0 }
func scaleVector(dst []float32, factor float32) int                     { return 0 }

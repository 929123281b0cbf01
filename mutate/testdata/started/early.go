package started

// The name of this file sorts before that of the switch, and first is called only here.
var early = first()

func first() int { return 5 }

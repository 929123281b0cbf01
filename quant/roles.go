package quant

// A role is the purpose of a part in its layout.
type role uint8

const (
	values        role = iota
	zeros              // are subtracted from the values
	scales             // multiply the differences of values and zeros
	biases             // are added to the products of values and scales
	index              // contains the group of each input column
	shape              // contains the shape of the result
	divisor            // divides the scales
	factor             // multiplies the scales
	codebook           // contains the number that each code stands for
	state              // contains JSON of bitsandbytes
	nestedScales       // scale the scales
	nestedNumbers      // contain the number that each code of the scales stands for
	order              // contains the order of the elements: 0 means row by row
	marker             // names the layout, as a marker of ComfyUI
)

package variant

// Errors of the library end with one of these texts where another package, or a field, helps. The
// texts are constants because the command replaces them with the verb or the flag that does the
// same.
const (
	// PackagesRead names the packages that read a file that safetensors.Open refuses.
	PackagesRead = "package torch reads files of torch.save (.bin, .pt), package dcp folders of .distcp files"

	// PackageOpens names the package that opens a safetensors file, for readers of other formats.
	PackageOpens = "which package safetensors opens"

	// PackageJoins names the package that reads the .metadata of a distributed checkpoint.
	PackageJoins = "package dcp joins the folder that it is in"

	// KeySelects is followed by a list of the dicts in a file of torch.save that Opener.Key can
	// select.
	KeySelects = "a key selects one of "
)

// A TopLevel is the error of package torch for a key that a file lacks, if its tensors are at the top
// level.
type TopLevel struct{ Text string }

func (e TopLevel) Error() string { return e.Text }

package osfile

// The names of a model's files, in folders and on hubs, as the Python packages
// give them.
const (
	FileSuffix  = ".safetensors"
	IndexSuffix = ".index.json"
	ModelFile   = "model" + FileSuffix    // a model in one file
	IndexFile   = ModelFile + IndexSuffix // which names the shards of a model in several
)

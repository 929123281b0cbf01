// Reads a file with huggingface.js: an adapter for `difftest -reader`.
//
//     node readers.mjs FILE
//
// It exits with 0 if parseSafetensorsMetadata reads the header of the file, with 1 if it throws an
// error. It looks for the package in the current directory, where
// `npm install @huggingface/hub@2.17.5` puts it. testdata/README.md has the results.

import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const hub = createRequire(`${process.cwd()}/`).resolve("@huggingface/hub");
const { parseSafetensorsMetadata } = await import(pathToFileURL(hub));
const file = await readFile(process.argv[2]);

// serve takes the place of the hub: it answers requests for a range of the file.
async function serve(_, { headers }) {
	const [first, last] = /^bytes=(\d+)-(\d+)$/.exec(new Headers(headers).get("Range")).slice(1).map(Number);
	return new Response(file.subarray(first, last + 1), {
		status: 206,
		headers: { "Content-Range": `bytes ${first}-${last}/${file.length}`, ETag: '"etag"' },
	});
}

try {
	await parseSafetensorsMetadata({ repo: "owner/model", path: "model.safetensors", fetch: serve });
} catch (error) {
	console.error(`${error.name}: ${error.message}`);
	process.exit(1);
}

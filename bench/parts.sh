#!/usr/bin/env bash
# Measures cp --part on an S3 server of this machine, for bench/cluster/RESULTS.md: four processes,
# one of which is killed and run again, and the requests that they send; then --part 1/1
# in turn with plain cp.
#
#	bench/parts.sh GIB FOLDER    FOLDER on a tmpfs: 64 GiB have taken 13 GB of it
#
# The source is sparse. Its zeros would fill the server's folder, so holes are dug into the
# files there, which read the same.
set -euo pipefail
cd "$(dirname "$0")/.."
tensors=$(($1 * 8)) # of 128 MiB each, two in a shard
work=$(mktemp -d "$2/parts.XXXXXX")
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$work"' EXIT

(cd cmd/safetensors && go build -o "$work/safetensors" .)
GOBIN=$work go install "$(sed -n 's/^VERSITYGW=//p' .ci/steps)"
python3 - "$work/source.safetensors" "$tensors" <<'PYTHON'
import json, sys
name, tensors, size = sys.argv[1], int(sys.argv[2]), 128 << 20
header = json.dumps({f"layers.{i:04d}.weight": {"dtype": "BF16", "shape": [size // 2048, 1024],
    "data_offsets": [i * size, (i + 1) * size]} for i in range(tensors)}).encode()
with open(name, "wb") as f:
    f.write(len(header).to_bytes(8, "little") + header)
    f.truncate(8 + len(header) + tensors * size)
PYTHON

address=127.0.0.1:$((20000 + RANDOM % 10000))
export AWS_ENDPOINT_URL_S3=http://$address AWS_REGION=us-east-1 AWS_ACCESS_KEY_ID=key AWS_SECRET_ACCESS_KEY=secret
mkdir -p "$work/server/models" "$work/attributes"
"$work/versitygw" -q --access key --secret secret --port "$address" --access-log "$work/log" \
	posix --sidecar "$work/attributes" "$work/server" >/dev/null &
until (echo >"/dev/tcp/${address/://}") 2>/dev/null; do sleep 0.1; done

# dig makes the zeros of all files of the server holes, again and again.
dig() {
	while :; do
		find "$work/server" -type f -size +1M -printf '%b %p\n' 2>/dev/null | awk '$1 > 1000 { print $2 }' |
			xargs -r -P 2 -n 1 fallocate -d 2>/dev/null || true
		sleep 0.1
	done
}
dig &

cp_part() { # K/N DST
	"$work/safetensors" cp "$work/source.safetensors" "$2" --max-shard-size 269MB --quiet --part "$1"
}

# timed COMMAND... prints the seconds that a command takes.
timed() {
	local TIMEFORMAT=%R
	{ time "$@" >/dev/null 2>&1; } 2>&1
}

# shards counts the shards of part 2.
shards() {
	find "$work/server/models/four" -name 'model-*' 2>/dev/null |
		awk -F- -v n=$((tensors / 8)) '{ i = $2 + 0 } i > n && i <= 2 * n { c++ } END { print c + 0 }'
}

printf '\n%d GiB, four parts, the second killed and run again\n' "$1"
start=$SECONDS
parts=()
for k in 1 3 4; do
	cp_part $k/4 s3://models/four &
	parts+=($!)
done
"$work/safetensors" cp "$work/source.safetensors" s3://models/four --max-shard-size 269MB --quiet --part 2/4 &
second=$!
while [ "$(shards)" -lt $((tensors / 16)) ]; do sleep 0.1; done
kill -9 "$second"
wait "$second" 2>/dev/null || true
printf 'killed after %d of %d shards\n' "$(shards)" $((tensors / 8))
cp_part 2/4 s3://models/four
wait "${parts[@]}"
printf '%d s\n' $((SECONDS - start))
grep -o 's3_[A-Za-z0-9]*' "$work/log" | sort | uniq -c
"$work/safetensors" diff "$work/source.safetensors" "$work/server/models/four" --quiet

printf '\n1 GiB, plain cp and --part 1/1 in turn, seconds\n'
flags=(--only 'layers.000[0-7].weight' --max-shard-size 269MB --quiet)
for i in 1 2 3 4 5; do
	plain=$(timed "$work/safetensors" cp "$work/source.safetensors" "s3://models/plain$i" "${flags[@]}")
	part=$(timed "$work/safetensors" cp "$work/source.safetensors" "s3://models/part$i" "${flags[@]}" --part 1/1)
	printf '%s %s\n' "$plain" "$part"
	diff -r -x .safetensors-plan.json "$work/server/models/plain$i" "$work/server/models/part$i"
done

# round-trip.sh NNAOT-OPT FOLDER TEMPORARY EVERY: see ../round-trip.test; of the files every EVERY-th
opt=$1 folder=$2 temporary=$3 every=$4 i=0 n=0
rm -rf "$temporary" && mkdir -p "$temporary"

same() {
  # Files that show errors cannot be read; hand-written ones may break promises of their phase.
  "$opt" --verify-each=false "$1" -o "$temporary/1.nn" 2>"$temporary/log" || return
  "$opt" --verify-each=false "$temporary/1.nn" -o "$temporary/2.nn" || echo "$1 differs: cannot be read again"
  cmp "$temporary/1.nn" "$temporary/2.nn" || echo "$1 differs"
  n=$((n + 1))
}

for file in $(find "$folder" -name '*.nn' | LC_ALL=C sort); do
  i=$((i + 1))
  [ $((i % every)) = 0 ] && same "$file"
done
"$opt" "$folder/passes/pipeline/inputs/mlp.nn" -o "$temporary/out.nn" --dump-dir="$temporary/dump" \
  --passes='loss(spec=mse(y)),eval_graph,autodiff,optimizer(name=adamw clip=1),simplify,shard(mesh=dp:2),comm,bucket_grads,fuse,plan_memory'
for file in "$temporary"/dump/*.nn; do
  same "$file"
done
echo "$n files read back the same"

# same.sh NNAOT-OPT TESTS TEMPORARY EVERY: see ../same.test; of the files every EVERY-th
opt=$1 tests=$2 temporary=$3 every=$4 i=0 n=0 folded=0
rm -rf "$temporary" && mkdir -p "$temporary"

# Files that show errors cannot be read; calls that are there already are unfolded too.
same() {
  "$opt" "$@" -o "$temporary/1.nn" 2>"$temporary/log" || return
  grep -q 'phase=typed' "$temporary/1.nn" && ! grep -q ' = call @' "$temporary/1.nn" || return
  "$opt" "$temporary/1.nn" --passes=outline_repeats -o "$temporary/2.nn" || echo "$1 differs: is not folded"
  "$opt" "$temporary/2.nn" --passes=inline_calls -o "$temporary/3.nn" || echo "$1 differs: is not unfolded"
  "$opt" "$temporary/1.nn" --passes=outline_repeats,inline_calls -o "$temporary/4.nn"
  cmp "$temporary/1.nn" "$temporary/3.nn" || echo "$1 differs"
  cmp "$temporary/1.nn" "$temporary/4.nn" || echo "$1 differs without a file between"
  n=$((n + 1))
  grep -q ' = call @' "$temporary/2.nn" && folded=$((folded + 1))
}

for file in $(find "$tests" -name '*.nn' | LC_ALL=C sort); do
  i=$((i + 1))
  [ $((i % every)) = 0 ] && same "$file"
done
for file in "$tests"/../samples/*/*.onnx "$tests"/e2e/models/*.onnx; do
  same "$file" --batch 4
  same "$file" --batch 4 --passes=simplify,raise,simplify
done
same "$tests/../samples/gpt2/gpt2.onnx" --batch 4 \
  --passes='simplify,raise,simplify,loss(spec="next_token(logits,input_ids)"),eval_graph,autodiff,optimizer(clip=1),simplify'
echo "$n programs are the same, $folded of them were folded"

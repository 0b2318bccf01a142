# through-text.sh NNAOT-OPT MODEL OUT MESH PLAN: a step under a plan, in one run and with text between passes.
set -e
step='simplify,raise,loss(spec="next_token(logits,input_ids)"),autodiff,optimizer(name=adamw,clip=1)'
shard="shard(mesh=$4,plan=\"$5\")"
"$1" "$2" --batch 8 --passes="$step,$shard,comm,bucket_grads" -o "$3.once"
"$1" "$2" --batch 8 --passes="$step" -o "$3"
for pass in "$shard" comm bucket_grads; do
  "$1" "$3" --passes="$pass" -o "$3.next"
  mv "$3.next" "$3"
done
diff "$3.once" "$3"
"$1" "$3" -o "$3.again"
diff "$3" "$3.again"

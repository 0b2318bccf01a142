# every-phase.sh NNAOT-OPT MODEL OUT: runs every pass on a module of each phase; a pass without its options may want them.
# Prints how many passes run, come too late, come too early, and want an option; nothing else may happen.
set -e
"$1" "$2" --passes='loss(spec="mse(y)"),autodiff,optimizer(name=adamw)' -o "$3.typed"
"$1" "$3.typed" --passes='shard(mesh="dp:2+tp:2",plan="dp,tp")' -o "$3.sharded" 2> "$3.warnings"
"$1" "$3.sharded" --passes=comm -o "$3.local"
"$1" "$3.local" --passes=fuse,plan_memory -o "$3.planned"
for phase in typed sharded local planned; do
  runs=0 late=0 early=0 option=0
  for pass in $("$1" --list | sed -n '/^pipelines/q; s/^  \([a-z_]*\).*/\1/p'); do
    status=0
    "$1" "$3.$phase" --passes=$pass -o "$3.result" 2> "$3.errors" || status=$?
    case "$status $(grep -m1 'error:' "$3.errors" || true)" in
    "0 ") runs=$((runs + 1)) ;;
    "1 error: pass '$pass' comes too late: the module is $phase" | \
      "1 error: outline_repeats wants a typed module, this one is $phase" | "1 error: the module is sharded already"*)
      late=$((late + 1)) ;;
    "1 error: pass '$pass' wants a "*" module, but this one is $phase") early=$((early + 1)) ;;
    "1 error: no loss is given"* | "1 error: 'mixed_precision' wants a type" | "1 error: '@train' has no gradients")
      option=$((option + 1)) ;;
    *) echo "$phase $pass: exit status $status"; cat "$3.errors" ;;
    esac
  done
  echo "$phase: $runs run, $late too late, $early too early, $option want an option"
done

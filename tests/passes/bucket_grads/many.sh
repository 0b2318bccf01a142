# many.sh N: a step with the sums of N columns of the batch, each a number of its own.
echo 'module phase=typed'
echo 'graph @main entry (%x: f32[4,8] input "x",'
for i in $(seq 2 "$1"); do echo "  %w$i: f32[8] weight \"w$i\" = 1,"; done
echo '  %w1: f32[8] weight "w1" = 1) {'
for i in $(seq "$1"); do
  echo "  %b$i = broadcast %w$i shape=[4,8]"
  echo "  %p$i = mul %x, %b$i"
  echo "  %s$i = reduce_sum %p$i axes=[0]"
done
echo '  return update %w1 %s1'
for i in $(seq 2 "$1"); do echo "  , update %w$i %s$i"; done
echo '}'

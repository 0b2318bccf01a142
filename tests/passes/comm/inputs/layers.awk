# A model of n layers: a product, tanh, and a product.
BEGIN {
  print "module phase=typed\ngraph @main entry (\n  %x: f32[16,64] input \"x\","
  for (i = 0; i < n; i++) {
    printf "  %%a%d: f32[64,256] weight \"a%d\" train = normal(0,1),\n", i, i
    printf "  %%b%d: f32[256,64] weight \"b%d\" train = normal(0,1)%s\n", i, i, i + 1 < n ? "," : ") {"
  }
  for (i = 0; i < n; i++) {
    printf "  %%h%d = linear %%%s, %%a%d : f32[16,256]\n", i, i ? "y" i - 1 : "x", i
    printf "  %%t%d = tanh %%h%d : f32[16,256]\n", i, i
    printf "  %%y%d = linear %%t%d, %%b%d : f32[16,64]\n", i, i, i
  }
  printf "  %%s = reduce_sum %%y%d axes=[0,1] : f32[]\n", n - 1
  print "  return output \"loss\" %s\n}"
}

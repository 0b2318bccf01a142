set(PASS_FILES
  # how passes are run
  diff.c
  dump.c
  pipeline.c
  pipeline_text.c
  # the passes and what they share, in the order of passes.def
  rewrite.c
  simplify.c
  simplify_arithmetic.c
  simplify_shape.c
  simplify_product.c
  fold_constants.c
  merge_equal.c
  mesh.c
  shard.c
  comm.c
  pack_grads.c
  fuse.c
  plan_memory.c
)

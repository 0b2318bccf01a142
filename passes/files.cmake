set(PASS_FILES
  # how passes are run
  diff.c
  dump.c
  pipeline.c
  pipeline_text.c
  # the passes and what they share, in the order of passes.def
  mesh.c
  shard.c
  comm.c
  pack_grads.c
  fuse.c
  plan_memory.c
)

set(PASS_FILES pipeline.c)

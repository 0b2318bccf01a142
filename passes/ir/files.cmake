set(IR_FILES ir/graph.c)

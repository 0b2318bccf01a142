# Writes OUTPUT, a C file that holds the programs of this folder; see ../plan_texts.h.
file(GLOB plans ${CMAKE_CURRENT_LIST_DIR}/*.lua)
list(SORT plans)
set(texts "")
set(rows "")
foreach(plan ${plans})
  get_filename_component(name ${plan} NAME_WE)
  file(READ ${plan} bytes HEX)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
  string(APPEND texts "static const char ${name}_text[] = {${bytes}0};\n")
  string(APPEND rows "    {\"${name}\", ${name}_text, sizeof ${name}_text - 1},\n")
endforeach()
file(WRITE ${OUTPUT} "#include \"plan_texts.h\"\n\n${texts}\nconst PlanText plan_texts[] = {\n${rows}};\n"
  "const int n_plan_texts = sizeof plan_texts / sizeof *plan_texts;\n")

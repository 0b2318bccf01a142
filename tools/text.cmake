# Writes OUTPUT, a C file that holds the text of FILE as the string NAME, which HEADER declares.
file(READ ${FILE} bytes HEX)
string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
file(WRITE ${OUTPUT} "#include \"${HEADER}\"\n\nconst char ${NAME}[] = {${bytes}0};\n")

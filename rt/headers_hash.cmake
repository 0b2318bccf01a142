# Writes OUTPUT, a header with the hash of HEADERS: see headers.c.
set(all "")
foreach(header IN LISTS HEADERS)
  file(SHA256 "${header}" hash)
  string(APPEND all "${hash}")
endforeach()
string(SHA256 hash "${all}")
file(CONFIGURE OUTPUT "${OUTPUT}" CONTENT "#define NNRT_HEADERS \"${hash}\"\n" @ONLY)

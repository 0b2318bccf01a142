# Programs written by hand, many in one executable: program_row.h.
find_package(Python3 REQUIRED COMPONENTS Interpreter)

# nnaot_rt_names(OUT TABLE): the names of a table's programs.
function(nnaot_rt_names out table)
  file(STRINGS "${table}" rows REGEX "^PROGRAM")
  list(TRANSFORM rows REPLACE "PROGRAM\\(([a-z0-9_]+).*" "\\1")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${table}")
  set(${out} "${rows}" PARENT_SCOPE)
endfunction()

# nnaot_rt_finish(TARGET FOLDER NAME ...): the executable in FOLDER with a payload, and links of these names to it.
set(NNAOT_RT_PAYLOAD "${CMAKE_CURRENT_LIST_DIR}/add_payload.py")
function(nnaot_rt_finish target folder)
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${folder}")
  list(TRANSFORM ARGN PREPEND "${folder}/" OUTPUT_VARIABLE links)
  # On its own name: the payload has to follow whenever the program is linked again.
  add_custom_command(TARGET ${target} POST_BUILD VERBATIM BYPRODUCTS ${links}
    COMMAND ${Python3_EXECUTABLE} "${NNAOT_RT_PAYLOAD}" $<TARGET_FILE:${target}> ${ARGN})
endfunction()

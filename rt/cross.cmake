# nnaot_cross_archives(PROCESSOR COMPILER): libnnrt_PROCESSOR.a and libnnrt_cpu_PROCESSOR.a, for --target cpu:PROCESSOR, by
# a compiler for that kind of processor, without a library of kernels.  The target nnrt_PROCESSOR, a part of `all`, makes both.
function(nnaot_cross_objects out processor cc)
  set(objects "")
  cmake_parse_arguments(PARSE_ARGV 3 arg "" "" "FILES;OPTIONS")
  string(TOUPPER "${CMAKE_BUILD_TYPE}" type)
  separate_arguments(flags UNIX_COMMAND "${CMAKE_C_FLAGS} ${CMAKE_C_FLAGS_${type}}")
  foreach(file IN LISTS arg_FILES)
    set(object "${CMAKE_CURRENT_BINARY_DIR}/${processor}/${file}.o")
    get_filename_component(folder "${object}" DIRECTORY)
    file(MAKE_DIRECTORY "${folder}")
    get_source_file_property(needs ${file} OBJECT_DEPENDS)
    if(NOT needs)
      set(needs "")
    endif()
    add_custom_command(OUTPUT "${object}"
      COMMAND ${CMAKE_C_COMPILER_LAUNCHER} "${cc}" -std=gnu17 -D_GNU_SOURCE -fopenmp ${flags} ${NNAOT_WARNINGS}
              ${NNAOT_HARDENING} -fsigned-char ${arg_OPTIONS} "-I${CMAKE_CURRENT_SOURCE_DIR}"
              "-I${CMAKE_CURRENT_BINARY_DIR}/hash"
              -MD -MF "${object}.d" -c "${CMAKE_CURRENT_SOURCE_DIR}/${file}" -o "${object}"
      DEPENDS ${file} ${needs} DEPFILE "${object}.d" COMMENT "Building ${processor} object ${file}.o" VERBATIM)
    list(APPEND objects "${object}")
  endforeach()
  set(${out} "${objects}" PARENT_SCOPE)
endfunction()

function(nnaot_cross_archives processor cc)
  nnaot_cross_objects(rt ${processor} "${cc}" FILES ${RT_FILES} OPTIONS -O3)
  nnaot_cross_objects(cpu ${processor} "${cc}" FILES ${CPU_FILES} ${CPU_OWN_FILES} OPTIONS ${CPU_OPTIONS})
  string(REGEX REPLACE "gcc([^/]*)$" "ar" ar "${cc}")
  set(archives "")
  foreach(name rt cpu)
    set(archive "${CMAKE_CURRENT_BINARY_DIR}/libnnrt_cpu_${processor}.a")
    if(name STREQUAL "rt")
      set(archive "${CMAKE_CURRENT_BINARY_DIR}/libnnrt_${processor}.a")
    endif()
    add_custom_command(OUTPUT "${archive}" COMMAND ${CMAKE_COMMAND} -E rm -f "${archive}"
                       COMMAND "${ar}" qcs "${archive}" ${${name}} DEPENDS ${${name}} VERBATIM)
    list(APPEND archives "${archive}")
  endforeach()
  add_custom_target(nnrt_${processor} ALL DEPENDS ${archives})
endfunction()

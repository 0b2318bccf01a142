# Every sample as a program for gpus: that it compiles, and on the emulator that it trains.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
foreach(sample mlp resnet gpt2)
  foreach(script compile emulated)
    add_test(NAME gpu-${script}-${sample}
             COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/${script}.py ${sample})
    set_tests_properties(gpu-${script}-${sample} PROPERTIES LABELS e2e
                         ENVIRONMENT "BUILD=${CMAKE_BINARY_DIR}")
  endforeach()
endforeach()

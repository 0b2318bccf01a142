# Every sample as a GPU program: it compiles, and on the emulator it trains.
foreach(sample mlp resnet gpt2)
  foreach(script compile emulated)
    nnaot_script_test(gpu-${script}-${sample} ${script}.py ARGUMENTS ${sample} LABELS e2e)
  endforeach()
endforeach()

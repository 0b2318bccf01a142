# Every sample as a program for gpus: that it compiles, and on the emulator that it trains.
foreach(sample mlp resnet gpt2)
  foreach(script compile emulated)
    nnaot_script_test(gpu-${script}-${sample} ${script}.py ARGUMENTS ${sample} LABELS e2e)
  endforeach()
endforeach()

-- Pipeline stages with a searched number of stages and of neighbouring ranks per stage, which share
-- its rows: for devices of different speed, or layers of different cost.

function step(axis)
  place(axis)
end

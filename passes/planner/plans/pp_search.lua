-- Stages as in pp, with the shortest schedule found for their times, in the memory of 1F1B.

function step(axis)
  apply("pp", axis)
  schedule("search")
end

-- As many stages as are best, of as many ranks each as are best.

function step(axis)
  place(axis)
end

frame.start(() => frame.plot(frame.data.figures));

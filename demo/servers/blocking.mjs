// Code that blocks its thread, and never asks whether it should stop.

export function loop(seconds) {
	const end = performance.now() + seconds * 1000;
	while (performance.now() < end);
}

export function stuck(seconds) {
	Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, seconds * 1000);
}

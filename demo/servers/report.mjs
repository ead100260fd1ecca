// The side channel by which a tool tells the harness when it started and when it has really ended. It is
// a pipe beside the wire, so that nothing on the wire has to be believed: a line an event, with the
// system's monotonic clock, which the harness reads too.

import { writeSync } from 'node:fs';

const fd = Number(process.env.DEMO_REPORT_FD);

export function report(event, what) {
	writeSync(fd, `${event} ${what} ${process.hrtime.bigint()}\n`);
}

export async function reported(tag, body) {
	report('start', tag);
	try {
		return await body();
	} finally {
		report('exit', tag);
	}
}

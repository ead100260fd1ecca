// The side channel by which a tool tells the harness when it started and when it has really ended. It is
// a pipe beside the wire, so that nothing on the wire has to be believed: a line an event, with the
// system's monotonic clock, which the harness reads too.

import { mkdtempSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const fd = Number(process.env.DEMO_REPORT_FD);
const tree = fileURLToPath(new URL('../../tests/tree/tree.sh', import.meta.url));

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

/** The command of a process tree; its processes write their numbers to a folder that is reported. */
export function freshTree(tag) {
	const folder = mkdtempSync(path.join(tmpdir(), 'countermand-demo-'));
	report('tree', `${tag}:${folder}`);
	return ['sh', [tree, folder]];
}

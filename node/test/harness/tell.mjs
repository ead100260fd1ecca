// What tools and workers do is told on fd 3, a JSON line an event, so that no test has to believe the wire.

import { writeSync } from 'node:fs';

export function tell(event, tag, more = {}) {
	writeSync(3, `${JSON.stringify({ event, tag, ...more })}\n`);
}

// The Node server of the host: the official SDK, guarded. Says on stderr when its handler begins and ends.

import { writeSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { McpServer } from '@modelcontextprotocol/server';
import { current, guard, StdioServerTransport } from 'countermand';
import { z } from 'zod';

const tell = (what) => writeSync(2, `${what} ${process.hrtime.bigint()}\n`);
const server = new McpServer({ name: 'node', version: '1.0.0' });

server.registerTool('work', { description: 'Works until it is told to stop.', inputSchema: z.object({}) }, async () => {
	tell('began');
	try {
		await sleep(3_600_000, undefined, { signal: current().signal });
		return { content: [{ type: 'text', text: 'done' }] };
	} finally {
		tell('ended');
	}
});

await guard(server).connect(new StdioServerTransport());

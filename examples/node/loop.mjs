// A checkpoint in a loop: it ends at the trip, also between two items that are far apart, and its source is closed.

import { McpServer } from '@modelcontextprotocol/server';
import { StdioServerTransport } from '@modelcontextprotocol/server/stdio';
import { current, guard } from 'countermand';
import { z } from 'zod';

const server = new McpServer({ name: 'counter', version: '1.0.0' });

server.registerTool('count_lines', { inputSchema: z.object({ url: z.string() }) }, async ({ url }) => {
	const token = current();
	const response = await fetch(url, { signal: token.signal });
	let lines = 0;
	for await (const text of token.guard(response.body.pipeThrough(new TextDecoderStream()))) {
		for (const char of token.guard(text)) if (char === '\n') lines++;
	}
	return { content: [{ type: 'text', text: `${lines} lines` }] };
});

await guard(server).connect(new StdioServerTransport());

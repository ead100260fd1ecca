// What cancellation does in a server, for whoever runs it: a line for each cancelled request on stderr, and a page for
// Prometheus on http://127.0.0.1:9464/ (set METRICS_PORT for another port).

import { createServer } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { McpServer } from '@modelcontextprotocol/server';
import { StdioServerTransport } from '@modelcontextprotocol/server/stdio';
import { current, guard, onCancelled, prometheus } from 'countermand';
import { z } from 'zod';

const server = new McpServer({ name: 'sender', version: '1.0.0' });

server.registerTool('send', { inputSchema: z.object({ seconds: z.number() }) }, async ({ seconds }, ctx) => {
	// What cannot be taken back has been done: a cancel from here on counts as abandoned with effects.
	current().commit();
	await sleep(seconds * 1000, undefined, { signal: ctx.mcpReq.signal });
	return { content: [{ type: 'text', text: 'sent' }] };
});

onCancelled(({ tool, cause, latencyMs }) => {
	console.error(`${tool} was cancelled by ${cause}, and ended after ${latencyMs?.toFixed(1)} ms`);
});

createServer((_request, response) => {
	response.setHeader('Content-Type', 'text/plain; version=0.0.4');
	response.end(prometheus());
})
	.listen(Number(process.env.METRICS_PORT ?? 9464), '127.0.0.1')
	.unref();

await guard(server).connect(new StdioServerTransport());

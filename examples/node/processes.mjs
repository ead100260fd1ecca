// Commands that die with their request, and everything that they start with them, on
// @modelcontextprotocol/server 2.x.

import { once } from 'node:events';
import { McpServer } from '@modelcontextprotocol/server';
import { StdioServerTransport } from '@modelcontextprotocol/server/stdio';
import { current, guard } from 'countermand';
import { z } from 'zod';

const server = new McpServer({ name: 'processes', version: '1.0.0' });
const answer = (text) => ({ content: [{ type: 'text', text: String(text) }] });

// Runs a command to its end. Cancelled, or this server killed, the shell is gone, and its children with it.
server.registerTool('wait', { inputSchema: z.object({ seconds: z.number() }) }, async ({ seconds }) => {
	const { code, stdout } = await current().run('sh', ['-c', `sleep ${seconds} & wait; date`]);
	return answer(code === 0 ? stdout : `failed: ${code}`);
});

// Speaks with a command that does not end by itself.
server.registerTool('upper', { inputSchema: z.object({ text: z.string() }) }, async ({ text }) => {
	const tr = current().spawn('tr', ['a-z', 'A-Z']);
	tr.stdin.end(text);
	const [line] = await once(tr.stdout, 'data');
	await tr.stop();
	return answer(line);
});

await guard(server).connect(new StdioServerTransport());

// A server that does what none should: it answers late, twice, never, under ids of others, and reports progress when all
// is over. `fake.mjs LOG [mute]`; what it has read is in LOG, a line each. It reads its stdin to the end, and exits.

import { appendFileSync } from 'node:fs';
import { createInterface } from 'node:readline';

const [log, mute] = process.argv.slice(2);
const say = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`);
const text = (text) => ({ content: [{ type: 'text', text }] });
const progress = (progressToken, progress) =>
	say({ method: 'notifications/progress', params: { progressToken, progress, total: 3 } });

/** Answers that wait for the cancel of their request. */
const late = new Map();

const tools = {
	echo: (id, { text: said = 'echo' } = {}) => say({ id, result: text(said) }),
	never: () => {},
	fail: (id) => say({ id, error: { code: -32001, message: 'no', data: { why: 'so' } } }),
	progress: (id, _args, token) => {
		for (let i = 0; i < 3; i++) progress(token, i);
		say({ id, result: text('done') });
	},
	// Reports for ever.
	lively: (_id, _args, token) => {
		setInterval(() => progress(token, 1), 20).unref();
	},
	// Answers, twice, when it is cancelled, and goes on.
	late: (id, _args, token) => {
		late.set(id, () => {
			progress(token, 1);
			say({ id, result: text('late') });
			say({ id, result: text('later') });
			progress(token, 2);
		});
	},
	// As an answer in time.
	cancelled: (id) => late.set(id, () => say({ id, error: { code: -32800, message: 'Request cancelled' } })),
	// Everything that is wrong beside the answer, before it and after.
	odd: (id, _args, token) => {
		for (const wrong of [987_654_321, -1, 2.5, String(id), 'nobody', ''])
			say({ id: wrong, result: text('odd') });
		progress('nobody', 1);
		progress(token === undefined ? 7 : String(token), 1);
		say({ id, result: text('right') });
		say({ id, result: text('twice') });
		say({ id, error: { code: -32603, message: 'and an error' } });
		progress(token, 3);
	},
	// Ends without a word.
	die: () => process.exit(1),
};

function heard({ id, method, params }) {
	if (method === 'initialize') {
		if (mute) return;
		const { protocolVersion } = params;
		const serverInfo = { name: 'fake', version: '1' };
		say({ id, result: { protocolVersion, capabilities: { tools: {} }, serverInfo } });
	} else if (method === 'tools/call') {
		const tool = tools[params.name];
		tool(id, params.arguments, params._meta?.progressToken);
	} else if (method === 'notifications/cancelled') {
		late.get(params.requestId)?.();
		late.delete(params.requestId);
	} else if (id !== undefined) {
		say({ id, error: { code: -32601, message: 'Method not found' } });
	}
}

appendFileSync(log, '');
createInterface({ input: process.stdin }).on('line', (line) => {
	appendFileSync(log, `${line}\n`);
	heard(JSON.parse(line));
});

// With no cancel on the wire, nobody can tell that the engine is there: the same session, stock and
// guarded, gives the same bytes at the peer's end and the same requests at the tools' end.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { call, Peer, STOCK_WAYS } from './harness/peer.mjs';

after(() => Peer.end());

/** A small generator, so that each side gets the same session. */
function random(seed) {
	let state = seed;
	return (below) => {
		state = (state * 1_103_515_245 + 12_345) % 2 ** 31;
		return Math.floor((state / 2 ** 31) * below);
	};
}

const IDS = [0, '', 'text', 'ünï\u2028\u{1f600}', -1, -(2 ** 53) + 1, 2 ** 53 - 1, 'a"\\b', '0', 42];
const TEXTS = [
	'',
	'plain',
	'ünïcödé \u2028\u2029 \u{1f600}',
	'"\\/\b\f\n\r\t\u0000\u001f',
	' spaces ',
	'{"a":1}',
];

/** 500 messages, each a line and the id that its answer will have, if one comes. */
function session() {
	const pick = random(7);
	const messages = [];
	let fresh = 100;
	for (let i = 0; i < 500; i++) {
		const id = i < 400 && pick(2) ? IDS[pick(IDS.length)] : ++fresh;
		const text = TEXTS[pick(TEXTS.length)];
		const add = (message) => messages.push({ line: JSON.stringify(message), id: message.id });
		switch (i % 100 === 50 ? 'huge' : pick(9)) {
			case 'huge':
				add(call(id, 'mirror', { text: (text || 'x').repeat(5_000_000 / size(text || 'x')) }));
				break;
			case 0:
				add({ jsonrpc: '2.0', id, method: 'ping' });
				break;
			case 1:
				add({ jsonrpc: '2.0', id, method: 'tools/list', params: {} });
				break;
			case 2:
				add({ jsonrpc: '2.0', id, method: 'no/such', params: { text } });
				break;
			case 3:
				add(call(id, 'no such tool', { text }));
				break;
			case 4:
				add(call(id, 'mirror', { text: i }));
				break;
			case 5:
				messages.push({ line: `{"jsonrpc":"2.0","method":"notifications/x","params":{"n":${i}}}` });
				break;
			case 6: {
				// The same message in another spelling.
				const params = JSON.stringify(call(id, 'mirror', { text }).params);
				const raw = typeof id === 'string' ? escaped(id) : id;
				messages.push({
					line: ` { "params" : ${params} ,"method":"tools\\/call", "id": ${raw},"jsonrpc":"2.0"}\r`,
					id,
				});
				break;
			}
			default:
				add(call(id, 'mirror', { text }, { progressToken: id }));
		}
	}
	return messages;
}

/** Bytes of a text as the frame has it. */
function size(text) {
	return Buffer.byteLength(JSON.stringify(text)) - 2;
}

function escaped(id) {
	const code = (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`;
	return `"${[...Array(id.length)].map((_, i) => code(id[i])).join('')}"`;
}

async function play(way, stock) {
	const peer = await Peer.open(way, { stock });
	for (const { line, id } of session()) {
		if (id === undefined) {
			peer.write(line);
			continue;
		}
		// The same id is used many times: the next answer is the one.
		const answer = peer.messages.next((message) => message.id === id, `an answer to ${line.slice(0, 200)}`);
		peer.write(line);
		await answer;
	}
	peer.process.stdin.end();
	if (stock) peer.process.kill('SIGTERM');
	await peer.exited;
	return { bytes: Buffer.concat(peer.bytes), events: peer.events.all };
}

for (const way of STOCK_WAYS) {
	test(`i14_transparency_500_messages_give_the_same_bytes_${way}`, async () => {
		const [stock, guarded] = [await play(way, true), await play(way, false)];
		assert.ok(stock.bytes.length > 20_000_000);
		assert.deepEqual(guarded.events, stock.events);
		assert.equal(guarded.bytes.equals(stock.bytes), true);
	});
}

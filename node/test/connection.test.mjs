// The public `Connection`, where the scenarios do not reach, and its handles.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Connection } from 'countermand';
import { call, cancel } from './harness/peer.mjs';

const line = JSON.stringify;

test('i10_fresh_ids_increase_and_an_alias_is_never_used_twice', () => {
	const connection = new Connection();
	const ids = Array.from({ length: 1000 }, () => {
		const { call, token } = connection.begin({ method: 'x' }, 0);
		token.release();
		return call;
	});
	for (let i = 1; i < ids.length; i++) assert.ok(ids[i] > ids[i - 1]);
	const inner = new Set();
	for (let i = 0; i < 100; i++) {
		const [{ frame, generation }] = connection.receive(line(call(5, 'x')), i);
		connection.start(generation, i);
		inner.add(JSON.parse(frame).id);
		connection.receive(line(cancel(5)), i);
	}
	assert.equal(inner.size, 100);
});

test('i1_one_answer_for_each_generation', () => {
	const connection = new Connection();
	connection.receive(line(call(5, 'x')), 0);
	const answer = line({ jsonrpc: '2.0', id: 5, result: {} });
	assert.equal(connection.send(answer, 1).verdict, 'write');
	assert.deepEqual(connection.send(answer, 2), { verdict: 'swallow', reason: 'no_such_request' });
});

test('i11_nothing_left_of_a_token_that_was_released', () => {
	const connection = new Connection();
	const [{ generation }] = connection.receive(Buffer.from(line(call(5, 'x'))), 0);
	const token = connection.token(generation);
	const child = token.child();
	connection.send(line({ jsonrpc: '2.0', id: 5, result: {} }), 1);
	assert.equal(connection.token(generation), null);
	assert.equal(connection.stats().tokens, 2);
	child.release();
	token.release();
	token.release();
	assert.equal(connection.stats().tokens, 0);
	assert.throws(() => token.cancelled, /released/);
});

test('errors_name_what_was_wrong', () => {
	assert.throws(() => new Connection({ wire: 'pigeon' }), /unknown wire: "pigeon"/);
	assert.throws(() => new Connection({ idMatch: 'maybe' }), /unknown idMatch/);
	assert.throws(() => new Connection().close('boredom', 0), /not a cause/);
});

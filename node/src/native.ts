/**
 * The native half, loaded once: the engine's functions over handles and shared memory.
 *
 * Nothing else in the package loads the addon.
 */

import native = require('../native/index.js');

export = native;

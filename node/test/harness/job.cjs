// A job in CommonJS.

const jobs = { echo: (data) => data };
module.exports = jobs;

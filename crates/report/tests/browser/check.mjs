// Opens a report in headless Chromium, wide and narrow, light and dark: nothing may scroll sideways,
// reach for the network, write to the console, or trouble a reader who uses assistive technology.
// Usage: node check.mjs REPORT.html CHROMIUM SHOTS_FOLDER
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const [report, executablePath, shots] = process.argv.slice(2);
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const address = pathToFileURL(report).href;
const faults = [];

const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
for (const width of [1280, 390]) {
  for (const colorScheme of ["light", "dark"]) {
    const where = `${width} px ${colorScheme}`;
    const page = await browser.newPage({ viewport: { width, height: 900 }, colorScheme });
    page.on("console", (message) => faults.push(`${where}: console: ${message.text()}`));
    page.on("pageerror", (error) => faults.push(`${where}: error: ${error.message}`));
    page.on("request", (request) => {
      if (request.url() !== address) faults.push(`${where}: loads ${request.url()}`);
    });
    await page.goto(address);
    await page.screenshot({ path: `${shots}/${width}-${colorScheme}.png`, fullPage: true });
    // Folded parts are read as well.
    await page.evaluate(() => document.querySelectorAll("details").forEach((at) => (at.open = true)));
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    if (wide > width) faults.push(`${where}: the page is ${wide} px wide`);
    // A phone may scroll inside a box; a desk has the room.
    const cut = await page.evaluate(() =>
      [...document.querySelectorAll(".scroll")]
        .filter((box) => box.scrollWidth > box.clientWidth)
        .map((box) => `${box.getAttribute("aria-label")} (${box.scrollWidth} px of ${box.clientWidth})`),
    );
    if (width >= 1280) faults.push(...cut.map((box) => `${where}: cut off: ${box}`));
    await page.evaluate(axe);
    const { violations } = await page.evaluate(() => axe.run());
    for (const fault of violations) {
      const serious = ["serious", "critical"].includes(fault.impact);
      const line = `${where}: axe ${fault.impact} ${fault.id}: ${fault.help}: ${fault.nodes[0].html.slice(0, 160)}`;
      if (serious) faults.push(line);
      else console.log(`minor: ${line}`);
    }
    await page.close();
  }
}
await browser.close();

for (const fault of faults) console.error(fault);
console.log(`${faults.length} faults`);
process.exit(faults.length ? 1 : 0);

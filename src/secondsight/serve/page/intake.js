// Ways in for a picture: drop, paste, choose, photograph.

import { find, make } from "/elements.js";

const KNOWN = /\.(heic|heif|tiff?|jp2|avif|webp)$/i;
let take = () => {};

export function onPicture(callback) { take = callback; }

function from(files) {
  const all = [...(files ?? [])], file = all.find((one) => one.type.startsWith("image/") || KNOWN.test(one.name)) ?? all[0];
  if (file) take(file);
}

for (const button of ["#pick", "#other"]) find(button).addEventListener("click", () => find("#file").click());
for (const input of ["#file", "#camera"]) find(input).addEventListener("change", (event) => { from(event.target.files); event.target.value = ""; });
addEventListener("paste", (event) => { if (event.clipboardData?.files.length) { event.preventDefault(); from(event.clipboardData.files); } });

let depth = 0;
const over = (step) => { depth = Math.max(0, depth + step); document.body.classList.toggle("over", depth > 0); };
addEventListener("dragenter", (event) => { event.preventDefault(); over(1); });
addEventListener("dragleave", () => over(-1));
addEventListener("dragover", (event) => event.preventDefault());
addEventListener("drop", (event) => { event.preventDefault(); depth = 0; over(0); from(event.dataTransfer?.files); });

// A phone has a camera of its own behind the file input; elsewhere the page looks through the one that is there.
const dialog = find("#viewfinder"), video = find("#viewfinder video");
find("#snap").addEventListener("click", async () => {
  if (matchMedia("(pointer: coarse)").matches || !navigator.mediaDevices?.getUserMedia) { find("#camera").click(); return; }
  try {
    video.srcObject = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment", width: { ideal: 1280 } } });
  } catch { find("#camera").click(); return; }
  dialog.showModal();
  await video.play();
});
dialog.addEventListener("close", () => { for (const track of video.srcObject?.getTracks() ?? []) track.stop(); video.srcObject = null; });
find("#shoot").addEventListener("click", () => {
  const canvas = make("canvas", { width: video.videoWidth, height: video.videoHeight });
  canvas.getContext("2d").drawImage(video, 0, 0);
  canvas.toBlob((blob) => { dialog.close(); take(new File([blob], "photo.jpg", { type: "image/jpeg" })); }, "image/jpeg", 0.92);
});
find("#no-shoot").addEventListener("click", () => dialog.close());

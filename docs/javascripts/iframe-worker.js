// The search of the site where no server is: a browser starts no worker for a page that it has read
// from a folder (file:), so that there a hidden frame runs the worker's script.
if (location.protocol === "file:") {
  window.Worker = window.IFrameWorker = class extends EventTarget {
    constructor(address) {
      super();
      this.waiting = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.addEventListener("load", () => this.start(frame.contentWindow, address), {once: true});
      document.body.append(frame);
    }

    start(inside, address) {
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", {data}));
      const script = inside.document.createElement("script");
      script.addEventListener("load", () => {
        this.inside = inside;
        this.waiting.forEach((data) => this.postMessage(data));
      });
      script.src = address;
      inside.document.head.append(script);
    }

    postMessage(data) {
      if (this.inside) this.inside.dispatchEvent(new MessageEvent("message", {data}));
      else this.waiting.push(data);
    }

    terminate() {}
  };
}

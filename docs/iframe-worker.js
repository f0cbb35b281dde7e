// A page that was opened from a disk may not start a Worker, and the search is one. There a hidden frame does its work.
class IFrameWorker extends EventTarget {
  constructor(url) {
    super();
    this.onmessage = null;
    this.frame = document.createElement("iframe");
    this.frame.hidden = true;
    document.body.append(this.frame);
    const inside = this.frame.contentWindow;
    inside.postMessage = (data) => this.answer(new MessageEvent("message", { data }));
    inside.importScripts = (...urls) => Promise.all(urls.map((each) => this.load(each)));
    this.ready = this.load(url);
  }

  load(url) {
    return new Promise((done) => {
      const script = this.frame.contentDocument.createElement("script");
      script.src = url;
      script.async = false;
      script.onload = done;
      this.frame.contentDocument.body.append(script);
    });
  }

  answer(message) {
    this.onmessage?.(message);
    this.dispatchEvent(message);
  }

  postMessage(data) {
    this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
  }

  terminate() {
    this.frame.remove();
  }
}

if (location.protocol === "file:") {
  window.IFrameWorker = IFrameWorker;
  window.Worker = IFrameWorker;
}

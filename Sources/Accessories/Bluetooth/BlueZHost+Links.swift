// What the kernel knows of Low Energy links before, or without, BlueZ: that one is gone.
import BlueZ
import Logging
import Reactor

extension BlueZHost {
    /// Opens a listener on an adapter: called for each link's end, and once when the adapter is gone.
    typealias Listening =
        @Sendable (
            _ adapter: UInt16, _ loop: EventLoop, _ onEnd: @escaping (UInt16) -> Void, _ onLoss: @escaping () -> Void
        ) throws(LEConnectionError) -> any LELinkListener

    /// The kernel's own events.
    static let kernel: Listening = { adapter, loop, onEnd, onLoss throws(LEConnectionError) in
        try LELinkWatch(adapter: adapter, loop: loop, onEnd: onEnd, onLoss: onLoss)
    }

    /// The links of one adapter, and who tells of them.
    struct AdapterLinks {
        var listener: any LELinkListener
        var links = LELinks()
    }

    /// How often it is looked whether a link is back of which BlueZ does not know that it was gone: nobody else would say so.
    static let lookAgain: Duration = .milliseconds(250)

    /// Has a listener on each adapter that is on.
    func updateListeners() {
        guard let client else { return }
        for adapter in client.assumeIsolated({ $0.adapters }) {
            guard adapter.isPowered, let number = adapter.identifier.index else {
                stopListening(on: adapter.identifier)
                continue
            }
            guard adapterLinks[adapter.identifier] == nil else { continue }
            let identifier = adapter.identifier
            do throws(LEConnectionError) {
                let listener = try listening(
                    number, loop, { [weak self] handle in self?.assumeIsolated { $0.ended(handle, on: identifier) } },
                    { [weak self] in self?.assumeIsolated { $0.stopListening(on: identifier) } })
                adapterLinks[identifier] = AdapterLinks(listener: listener)
                unheardAdapters.remove(identifier)
                lookAtLinks(of: identifier)
            } catch {
                // BlueZ's word has to do.
                guard unheardAdapters.insert(identifier).inserted else { continue }
                logger.debug(
                    "losses of links are known from BlueZ only",
                    metadata: ["adapter": "\(identifier)", "reason": "\(error)"])
            }
        }
    }

    /// Ends what listens on an adapter.
    func stopListening(on adapter: AdapterIdentifier) {
        adapterLinks.removeValue(forKey: adapter)?.listener.shut()
    }

    /// Ends what listens.
    func stopListening() {
        adapterLinks.values.forEach { $0.listener.shut() }
        adapterLinks = [:]
    }

    /// Whether the kernel has lost the link to a device that BlueZ takes for connected.
    func hasLostLink(_ device: DeviceIdentifier, _ address: String) -> Bool {
        guard let links = adapterLinks[device.adapter]?.links, !links.lost.isEmpty else { return false }
        return BluetoothAddress(address).map(links.lost.contains) ?? false
    }

    /// BlueZ said that a device is, or is not, connected.
    func connectionChanged(_ device: Device) {
        if device.isConnected {
            lookAtLinks(of: device.identifier.adapter)
        } else {
            adapterLinks[device.identifier.adapter]?.links.bluezKnows(device.address)
        }
    }

    /// Reads the kernel's list, and tells what it changes.
    func lookAtLinks(of adapter: AdapterIdentifier) {
        // Reading hears what is waiting first, which may change or end the listener.
        guard let listener = adapterLinks[adapter]?.listener, let found = try? listener.links() else { return }
        guard let changed = adapterLinks[adapter]?.links.update(found) else { return }
        tellLinks(of: changed, on: adapter)
    }

    private func ended(_ handle: UInt16, on adapter: AdapterIdentifier) {
        guard let changed = adapterLinks[adapter]?.links.ended(handle) else { return }
        tellLinks(of: changed, on: adapter)
    }

    private func tellLinks(of devices: Set<BluetoothAddress>, on adapter: AdapterIdentifier) {
        for address in devices {
            for facts in told.values where facts.id.adapter == adapter && facts.address == address.description {
                tell(facts.id)
            }
        }
        waitForLinks()
    }

    private func waitForLinks() {
        guard linkTimer?.isPending != true, adapterLinks.values.contains(where: { !$0.links.lost.isEmpty }) else {
            return
        }
        linkTimer = loop.schedule(after: Self.lookAgain) { [weak self] in
            self?.assumeIsolated { host in
                for (adapter, known) in host.adapterLinks where !known.links.lost.isEmpty {
                    host.lookAtLinks(of: adapter)
                }
                host.waitForLinks()
            }
        }
    }
}

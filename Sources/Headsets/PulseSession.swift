// A connection's life on libpulse's thread: it connects, subscribes, and lists cards, sources and sinks after changes.
import CPulse
import Glibc
import MonotonicTime

/// Confined to the thread of a `PulseServer`.
final class PulseSession {
    /// The pauses between attempts to connect grow up to this.
    private static let retryMax = Duration.seconds(30)
    private static let retryMin = Duration.seconds(1)

    let pulse: ptt_pulse
    private let mainloop: OpaquePointer
    private let address: String?
    private let handler: (PulseReport) -> Void
    private var context: OpaquePointer?
    private var retry = PulseSession.retryMin
    /// When `connectWhenDue` has something to do.
    private(set) var connectAt: Instant? = .now
    private var isReady = false
    private var hasToldLoss = false
    private var told: [HeadsetFacts]?
    /// The listing under way, and whether something has changed since it began.
    private var listing: PulseListing?
    private var isDirty = false
    /// Profiles that were asked for; the server answers in order.
    private var cards: [UInt32] = []

    init(_ pulse: ptt_pulse, _ mainloop: OpaquePointer, address: String?, handler: @escaping (PulseReport) -> Void) {
        self.pulse = pulse
        self.mainloop = mainloop
        self.address = address
        self.handler = handler
    }

    func connectWhenDue(at now: Instant) {
        guard let connectAt, now >= connectAt else { return }
        self.connectAt = nil
        guard let made = pulse.context_new(pulse.mainloop_get_api(mainloop), "pttd") else {
            return lost("libpulse has no memory")
        }
        context = made
        pulse.context_set_state_callback(
            made, { _, me in PulseSession.of(me)?.stateChanged() }, Unmanaged.passUnretained(self).toOpaque())
        // Where there is no server, the state changes within this call, and the context is gone after it.
        if pulse.context_connect(made, address, PA_CONTEXT_NOAUTOSPAWN, nil) < 0, context == made { lost(reason(made)) }
    }

    func end() {
        drop()
        connectAt = nil
    }

    func setProfile(card: UInt32, _ profile: String) {
        guard isReady, let context else {
            return handler(.profileSet(card: card, problem: "the sound server cannot be reached"))
        }
        let operation = profile.withCString { name in
            pulse.context_set_card_profile_by_index(
                context, card, name, { _, success, me in PulseSession.of(me)?.profileSet(success != 0) },
                Unmanaged.passUnretained(self).toOpaque())
        }
        guard let operation else { return handler(.profileSet(card: card, problem: reason(context))) }
        pulse.operation_unref(operation)
        cards.append(card)
    }

    /// Suspends both of a headset's nodes, which share the link, and resumes them. Whether that helps shows by its sound.
    func renewLink(of headset: HeadsetFacts) {
        guard isReady, let context else { return }
        for isSuspended: Int32 in [1, 0] {
            let operations = [
                headset.microphone.flatMap {
                    pulse.context_suspend_source_by_name(
                        context, PulseListing.node(ofPCM: $0), isSuspended, nil, nil)
                },
                headset.speaker.flatMap {
                    pulse.context_suspend_sink_by_name(context, PulseListing.node(ofPCM: $0), isSuspended, nil, nil)
                },
            ]
            for case let operation? in operations { pulse.operation_unref(operation) }
        }
    }

    // MARK: What libpulse tells

    static func of(_ pointer: UnsafeMutableRawPointer?) -> PulseSession? {
        pointer.map { Unmanaged<PulseSession>.fromOpaque($0).takeUnretainedValue() }
    }

    private func stateChanged() {
        guard let context else { return }
        switch pulse.context_get_state(context) {
        case PA_CONTEXT_READY:
            isReady = true
            hasToldLoss = false
            retry = Self.retryMin
            let me = Unmanaged.passUnretained(self).toOpaque()
            pulse.context_set_subscribe_callback(context, { _, _, _, me in PulseSession.of(me)?.list() }, me)
            let mask =
                PA_SUBSCRIPTION_MASK_CARD.rawValue | PA_SUBSCRIPTION_MASK_SOURCE.rawValue
                | PA_SUBSCRIPTION_MASK_SINK.rawValue
            let operation = pulse.context_subscribe(context, pa_subscription_mask_t(rawValue: mask), nil, nil)
            if let operation { pulse.operation_unref(operation) }
            list()
        case PA_CONTEXT_FAILED, PA_CONTEXT_TERMINATED: lost(reason(context))
        default: break
        }
    }

    private func profileSet(_ succeeded: Bool) {
        guard let context, !cards.isEmpty else { return }
        let card = cards.removeFirst()
        handler(.profileSet(card: card, problem: succeeded ? nil : "the sound server refused: \(reason(context))"))
    }

    /// Lists everything anew, once for all changes that come while a listing is under way.
    private func list() {
        guard isReady, let context else { return }
        guard listing == nil else {
            isDirty = true
            return
        }
        isDirty = false
        let listing = PulseListing(pulse) { [weak self] listing in self?.listed(listing) }
        self.listing = listing
        if !listing.begin(on: context) { lost(reason(context)) }
    }

    private func listed(_ listing: PulseListing) {
        guard listing === self.listing else { return }
        self.listing = nil
        let facts = listing.facts
        if facts != told {
            told = facts
            handler(.listed(facts))
        }
        if isDirty { list() }
    }

    // MARK: Losses

    private func lost(_ reason: String) {
        drop()
        if !hasToldLoss {
            hasToldLoss = true
            handler(.lost(reason))
        }
        connectAt = .now + retry
        retry = min(Self.retryMax, retry * 2)
    }

    private func drop() {
        isReady = false
        told = nil
        for card in cards { handler(.profileSet(card: card, problem: "the sound server has gone")) }
        cards = []
        defer { listing = nil }
        guard let context else { return }
        self.context = nil
        pulse.context_set_state_callback(context, nil, nil)
        pulse.context_set_subscribe_callback(context, nil, nil)
        pulse.context_disconnect(context)
        pulse.context_unref(context)
    }

    private func reason(_ context: OpaquePointer) -> String {
        pulse.strerror(pulse.context_errno(context)).map { String(cString: $0) } ?? "no reason given"
    }
}

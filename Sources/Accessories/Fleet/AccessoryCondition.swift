// The status of an accessory, in the words that people are shown. Computed from the other objects; owns nothing.
import BlueZ

/// Everything that an accessory's status is made of, at one moment.
struct AccessoryCondition {
    let accessory: FleetAccessory
    let controls: ControlsStateMachine?
    /// Percent, as the accessory itself tells.
    let battery: Int?
    /// A control of it takes part in the transmission.
    let isHeld: Bool
    /// Its local devices.
    let locals: [LocalDeviceFacts]
    /// The keys of one of them came by Bluetooth, and it is not bonded though it has to be.
    let isLocalBarred: Bool
    let library: ProfileLibrary
    let radio: RadioState
    /// The service that carries its presses, when that hangs.
    let lostCarrier: PressCarrier?
    /// How many values a second its device sends, when those are too many.
    let floodRate: Int?

    private var link: any AccessoryLink { accessory.link }
    private var configuration: AccessoryConfiguration { accessory.configuration }
    private var isLocal: Bool { !locals.isEmpty }
    private var profile: AccessoryProfile? {
        controls?.profile ?? link.profile ?? configuration.profileID.flatMap { library[$0] }
    }

    static func floodProblem(_ rate: Int) -> String {
        "it sends \(rate) values a second, of which only the newest are looked at: switch it off, or have it repaired"
    }

    var status: AccessoryStatus {
        let profile = profile
        let isHeard =
            isLocal
            ? controls != nil && accessory.localProblem == nil && !isLocalBarred
            : link.isReady && lostCarrier == nil && controls?.isCertain != false
        return AccessoryStatus(
            id: accessory.id,
            name: accessory.lastName ?? locals.first?.name ?? configuration.name?.text ?? accessory.id.text,
            address: accessory.lastAddress ?? configuration.address ?? "", profileID: profile?.id,
            profileTitle: profile?.title, isConnected: isLocal || link.device?.isReachable ?? false,
            transport: profile?.transport, isBonded: link.device?.isBonded ?? false,
            actions: controls?.actions ?? [:], isReady: isHeard,
            battery: profile?.battery == .text ? battery : link.device?.battery, soundAddress: sound.address,
            hasSound: sound.isCertain, isHeld: isHeld, problem: problem)
    }

    /// The services of devices with microphone and speaker: Hands-Free and Headset, of which the latter has two numbers (Bluetooth
    /// Assigned Numbers, 3.3).
    private static let soundServices: Set<BluetoothUUID> = ["111e", "1108", "1131"]

    private var sound: (address: String?, isCertain: Bool) {
        switch configuration.sound {
        case .none: return (nil, false)
        case .device(let address): return (address, true)
        case .own:
            let local = locals.lazy.compactMap(\.address).first
            guard let address = accessory.lastAddress ?? configuration.address ?? local else { return (nil, false) }
            return (address, link.device.map { !$0.services.isDisjoint(with: Self.soundServices) } ?? false)
        }
    }

    private var problem: String? {
        if isLocal {
            return isLocalBarred
                ? AccessoryLinkKind.unbondedProblem : accessory.localProblem ?? controls?.refusedGesture
        }
        if configuration.isWireless {
            switch radio {
            case .noService: return "the Bluetooth service is not running: systemctl start bluetooth"
            case .off:
                return
                    "no Bluetooth adapter is on: plug one in, or 'rfkill unblock bluetooth', 'bluetoothctl power on'"
            case .on: break
            }
        }
        if let problem = lostCarrier?.problem ?? floodRate.map(Self.floodProblem) ?? link.problem { return problem }
        if case .passive = accessory.kind { return missing }
        if link.isReady, controls?.isHeldFromBefore == true {
            return "it is held since before it was connected: let it go, and press it anew"
        }
        return controls?.refusedGesture ?? accessory.note
    }

    /// Its presses come from a local device, and there is none.
    private var missing: String {
        if accessory.id == .mediaPlayer {
            return "no media player is registered: write media-player = true in [accessories]"
        }
        if let id = configuration.profileID, library[id] == nil {
            return "there is no profile \"\(id)\": correct the name, or put its file into the profiles directory"
        }
        let what = profile?.transport == .serial ? "serial port" : "input device"
        if configuration.isWireless, link.device?.isReachable != true {
            return "asleep or out of range: press its button"
        }
        return "no \(what) of it is there: plug it in, and give it to pttd by a udev rule (TAG+=\"pttd\")"
    }
}

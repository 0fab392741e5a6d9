// What an installer should know of an accessory that was added.
import Accessories

extension AddStateMachine {
    /// In words.
    var notes: [String] {
        guard let device, let configuration else { return [] }
        var notes: [String] = []
        if isKeyboard {
            notes.append(
                """
                it is an input device (HID), which pttd opens only when a udev rule has tagged it. Put this line into \
                /etc/udev/rules.d/70-pttd.rules:
                SUBSYSTEM=="input", KERNEL=="event*", ATTRS{uniq}=="\(device.address.lowercased())", TAG+="pttd", \
                ENV{PTTD_ACCESSORY}="\(configuration.id)", ENV{PTTD_GRAB}="1"
                and then run: udevadm control --reload && udevadm trigger -s input
                """)
        } else if !device.isBonded {
            notes.append(
                profile?.bonding == .never
                    ? "it is not bonded and cannot be: somebody in reach could imitate it and so open the microphone; where that "
                        + "matters, use a button that can be bonded"
                    : "it is not bonded: somebody in reach could imitate it and so open the microphone; where that matters, remove it and add it "
                        + "again with --bonded-only, if it can be paired")
        }
        if let profile {
            if profile.isExperimental {
                notes.append(
                    "profile '\(profile.id)' is experimental, from a single source: try each control with 'pttctl accessory test "
                        + "\(configuration.id)'")
            }
            if profile.toggleOnly.contains(where: { profile.defaultAction(of: $0) == .transmit }) {
                notes.append(
                    "it tells no release: one press begins to transmit, and the next one ends; it cannot be held to talk"
                )
            }
            if let refusal = profile.refusal { notes.append(refusal) }
        }
        return notes
    }
}
